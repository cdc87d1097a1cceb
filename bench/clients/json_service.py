"""A JSON service for scoring as services are written with FastAPI: json_service.py MODEL. Prints where it is."""

import socket
import sys

import numpy as np
import orjson
import uvicorn
import xgboost
from fastapi import FastAPI, Request, Response

booster = xgboost.Booster()
of_one_thread = xgboost.Booster()
app = FastAPI()


def predicted(rows):
    # One row is one thread's: two would wait for each other.
    return (booster if len(rows) > 1 else of_one_thread).inplace_predict(np.array(rows))


@app.post("/score")
async def score(request: Request):
    asked = await request.json()
    return {"scores": predicted(asked["rows"]).tolist()}


@app.post("/orjson")
async def score_by_orjson(request: Request):
    asked = orjson.loads(await request.body())
    return Response(orjson.dumps({"scores": predicted(asked["rows"])}, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


if __name__ == "__main__":
    for one in (booster, of_one_thread):
        one.load_model(sys.argv[1])
    of_one_thread.set_param({"nthread": 1})
    # asyncio sends answers at once only on a socket that says which protocol it is; else each waits 40 ms for an acknowledgement.
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    place.bind(("127.0.0.1", 0))
    place.listen()
    print(f"127.0.0.1:{place.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[place])
