"""Delivers the events of a service's output stream to its subscribers, from a cursor to live.

No HTTP here: the gateway implements the sinks (SSE, WebSocket, poll) and the push transports (webhook). Delivery never
blocks a writer of the log, and a slow subscriber never delays another one.

Each subscriber is in one state (`subscriber.SubscriberState`). `lifecycle.Lifecycle.route` chooses the next state from
what the subscriber still needs: events that the log does not have (HISTORY), the latest event of each key (SNAPSHOT),
or the log from its cursor on (CATCHING_UP). At the end of the log it waits to be admitted (JOINING) to the pass that
serves all subscribers that have caught up (LIVE). docs/subscriber-states.md draws the transitions.

Two sides share the work. The event loop owns sinks and states (`hub`, `lifecycle`, `history_sender`,
`snapshot_sender`). One thread per service and kind reads the log, matches and renders (`live`, `replay`, both on
`worker` and `lane`). They exchange messages in order. Two values invalidate work that was started for an earlier state:
`Sink.epoch`, which grows when a sink is full, and `Subscriber.membership`, which is new in each state.
"""
