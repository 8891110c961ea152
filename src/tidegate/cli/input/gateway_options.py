"""Options of the commands that start a gateway: `tidegate gateway` and `tidegate up`."""

from __future__ import annotations

from typing import Annotated

import typer

Host = Annotated[
    str, typer.Option("--host", help="The address to listen on; any other than loopback requires API keys.")
]
Port = Annotated[int, typer.Option("--port", help="The port to listen on; 0: any free one.", min=0, max=65535)]
Origin = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        help="An origin whose web pages may use the gateway (CORS); may be repeated. *: all, if keys are required.",
    ),
]
PrivateWebhooks = Annotated[
    bool, typer.Option("--allow-private-webhooks", help="Allow webhooks to addresses that are not public.")
]
Broker = Annotated[
    str | None, typer.Option("--broker", help="The name of this broker for linked ones; default: the host name.")
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", help="Serve https with this certificate (chain), a PEM file.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", help="The private key of --tls-cert, a PEM file.")]
TlsClientCa = Annotated[
    str | None,
    typer.Option("--tls-client-ca", help="Authorities that sign the client certificates to accept, a PEM file."),
]
