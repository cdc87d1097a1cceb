"""A JSON scoring service in the usual FastAPI style: json_service.py MODEL. Prints its address."""

import socket
import sys
from typing import Any

import numpy as np
import orjson
import uvicorn
import xgboost
from fastapi import FastAPI, Request, Response

booster = xgboost.Booster()
single_thread_booster = xgboost.Booster()
app = FastAPI()


def predict(rows: list[list[float]]) -> Any:
    # One thread scores a single row: two would wait for each other.
    return (booster if len(rows) > 1 else single_thread_booster).inplace_predict(np.array(rows))


async def score(request: Request) -> dict[str, Any]:
    asked = await request.json()
    return {"scores": predict(asked["rows"]).tolist()}


async def score_by_orjson(request: Request) -> Response:
    asked = orjson.loads(await request.body())
    return Response(orjson.dumps({"scores": predict(asked["rows"])}, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


app.post("/score")(score)
app.post("/orjson")(score_by_orjson)

if __name__ == "__main__":
    for one in (booster, single_thread_booster):
        one.load_model(sys.argv[1])
    single_thread_booster.set_param({"nthread": 1})
    # asyncio disables Nagle's algorithm only on a socket with an explicit protocol; without it, each answer waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
