"""Clients of a `godwit serve` that know nothing of it: node.py ADDRESS [TOKEN].

Jobs: `flight`, a dataset without SQL by pyarrow; `info`, questions after one, some times; `ticket`, what a ticket stands for; `sql` by the ADBC driver of Flight SQL, and `digest`, what
its rows sum up to.
"""

import json
import sys

import _loop
import adbc_driver_flightsql.dbapi
from pyarrow import flight


def jobs(address, token=None):
    client = flight.connect(f"grpc+tcp://{address}")
    shown = f"Bearer {token}" if token else None
    options = flight.FlightCallOptions(headers=[(b"authorization", shown.encode())] if shown else [])
    settings = {"adbc.flight.sql.authorization_header": shown} if shown else {}
    cursor = adbc_driver_flightsql.dbapi.connect(f"grpc://{address}", db_kwargs=settings, autocommit=True).cursor()

    def by_flight(dataset, columns=None, regions=None, parts=None):
        command = {"dataset": dataset, "columns": columns, "regions": regions, "parts": parts}
        command = {key: value for key, value in command.items() if value is not None}
        info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(command).encode()), options)
        tables = [client.do_get(endpoint.ticket, options).read_all() for endpoint in info.endpoints]
        return {"rows": sum(table.num_rows for table in tables), "bytes": sum(table.nbytes for table in tables)}

    def info(dataset, times):
        descriptor = flight.FlightDescriptor.for_path(dataset)
        for _ in range(times):
            client.get_flight_info(descriptor)
        return {"times": times}

    def by_ticket(ticket):
        table = client.do_get(flight.Ticket(ticket.encode()), options).read_all()
        return {"rows": table.num_rows, "bytes": table.nbytes}

    def by_adbc(sql):
        cursor.execute(sql)
        return _loop.told(cursor.fetch_arrow_table())

    def digest(sql):
        cursor.execute(sql)
        return _loop.digest(cursor.fetch_arrow_table())

    return {"flight": by_flight, "info": info, "ticket": by_ticket, "sql": by_adbc, "digest": digest}


if __name__ == "__main__":
    _loop.serve(jobs(*sys.argv[1:]))
