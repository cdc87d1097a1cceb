"""A service for scoring as a program: ``python -m godwit.scoring MODELS``."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from .._errors import GodwitError, MachineError
from ._service import DEFAULT_LISTEN, Service, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m godwit.scoring", description="Serves models for scoring over Arrow Flight.")
    parser.add_argument("models", type=Path, metavar="MODELS", help="a model's file, or a directory with NAME.ubj or NAME/VERSION.ubj and the like")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=f"address; port 0 takes any (default: {DEFAULT_LISTEN})")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="let in only who shows the token in this file")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate and its chain, PEM; with it the service speaks TLS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="key of the certificate, PEM")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each model's library (default: its own choice)")
    parser.add_argument(
        "--trust-pickles", action="store_true", help="read models that are pickles (.joblib, .pkl), which may do anything as they are read"
    )
    parser.add_argument("--insecure", action="store_true", help="serve other machines without TLS, or without a token")
    args = parser.parse_args()
    ended, changed = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        ended.set()
        changed.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, lambda *_: changed.set())
    try:
        with serve(
            args.models,
            args.listen,
            token=_token(args.token_file),
            tls_cert=args.tls_cert,
            tls_key=args.tls_key,
            threads=args.threads,
            trust_pickles=args.trust_pickles,
            insecure=args.insecure,
        ) as service:
            print(f"scoring by {_named(service)} on {service.url}", flush=True)
            while changed.wait() and not ended.is_set():
                changed.clear()
                print(f"reloaded: {service.reload()}", file=sys.stderr, flush=True)
    except GodwitError as error:
        print(f"godwit: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _named(service: Service) -> str:
    return ", ".join(f"{one['model']}/{one['version']}" for one in service.models)


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    if not token:
        raise MachineError(f"{path} holds no token")
    return token


if __name__ == "__main__":
    sys.exit(main())
