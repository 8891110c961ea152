"""Federation of brokers: `routes` computes which events go where, `link` transfers them over WebSocket."""
