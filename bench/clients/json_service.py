"""A JSON service for scoring as services are written with FastAPI: json_service.py MODEL. Prints where it is."""

import socket
import sys

import numpy as np
import orjson
import uvicorn
import xgboost
from fastapi import FastAPI, Request, Response

booster = xgboost.Booster()
app = FastAPI()


@app.post("/score")
async def score(request: Request):
    asked = await request.json()
    return {"scores": booster.inplace_predict(np.array(asked["rows"])).tolist()}


@app.post("/orjson")
async def score_by_orjson(request: Request):
    asked = orjson.loads(await request.body())
    scores = booster.inplace_predict(np.array(asked["rows"]))
    return Response(orjson.dumps({"scores": scores}, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


if __name__ == "__main__":
    booster.load_model(sys.argv[1])
    place = socket.create_server(("127.0.0.1", 0))
    print(f"127.0.0.1:{place.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[place])
