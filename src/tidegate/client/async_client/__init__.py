"""The asyncio client. `tidegate.client.sync_client` is generated from this package: run `make generate` after a change.

The classes only do I/O: requests, responses and the protocols across reconnects are values and state machines in
`tidegate.client`, which both clients share.
"""
