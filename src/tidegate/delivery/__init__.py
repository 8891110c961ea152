"""Delivers the events of a service's output stream to its subscribers, from a cursor to live.

No HTTP here: the gateway implements the sinks (SSE, WebSocket, poll) and the push transports (webhook). Delivery never
blocks a writer of the log, and a slow subscriber never delays another one.

Each subscriber is in one state (`subscriber.SubscriberState`). `lifecycle.Lifecycle.route` chooses the next state from
what the subscriber still needs::

     subscribe · history sent · snapshot sent · join refused · sink full · filter or schema changed · read failed
                                                   │
                                                 route
            ┌─────────────────────┬────────────────┴────┬──────────────────────┐
     the log does not         a snapshot           otherwise             it starts now,
     have all events          is requested              │                without a cursor
            ▼                     ▼                     ▼                      │
         HISTORY               SNAPSHOT            CATCHING_UP                 │
     pages from another     latest event of        reads the log in            │
     broker                 each key               a shared lane               │
            │                     │                     │ end of the log         │
            └────── route ◀───────┘                     ▼                      │
                                                     JOINING ◀─────────────────┘
                                          waits for the gap between two passes
                                                        │ admitted
                                                        ▼
                                                      LIVE
                                           one matching pass for all

     unsubscribe, dismiss: from any state to GONE, which is final

Three parts share the work. The event loop owns sinks and states (`hub`, `lifecycle`, `history_sender`,
`snapshot_sender`). One thread per service and kind reads the log, matches and renders (`live`, `replay`, both on
`worker` and `lane`). They exchange messages in order, and two values void work that is under way for an earlier state:
`Sink.epoch`, which grows when a sink is full, and `Subscriber.membership`, which is new in each state.
"""
