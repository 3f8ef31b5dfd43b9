"""The same cores over real sockets: framing, connections, brokers, clients."""
