"""`tidegate gateway`: serve the API for one data folder. `tidegate up` starts such a process for its services."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.input import gateway_options, options
from tidegate.cli.output.logging import log_to_stderr
from tidegate.cli.processes.gateway_server import broker_name, serve
from tidegate.cli.processes.listening import HOST, PORT, allowed_origins, find_port, require_keys
from tidegate.cli.profile import EMBEDDED
from tidegate.cli.profile.tls import with_options


def gateway(
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    host: gateway_options.Host = HOST,
    port: gateway_options.Port = PORT,
    origin: gateway_options.Origin = None,
    allow_private_webhooks: gateway_options.PrivateWebhooks = False,
    broker: gateway_options.Broker = None,
    semantics: options.Semantics = None,
    tls_cert: gateway_options.TlsCert = None,
    tls_key: gateway_options.TlsKey = None,
    tls_client_ca: gateway_options.TlsClientCa = None,
    child: Annotated[bool, typer.Option("--child", hidden=True, help="Stop when standard input closes.")] = False,
) -> None:
    """Serve the API alone, from the log and the registry of a folder or a profile, until Ctrl-C."""
    home = options.home(data, profile, lambda tls: with_options(tls, tls_cert, tls_key, tls_client_ca))
    log_to_stderr()
    home.protect()
    name = broker_name(broker)
    if broker is not None:  # a named broker may serve only the services of its links: create its registry
        home.registry().close()
    require_keys(home, host)
    serve(
        home,
        host,
        find_port(host, port),
        private=allow_private_webhooks,
        origins=allowed_origins(home, host, origin),
        broker=name,
        semantics=semantics,
        child=child,
    )
