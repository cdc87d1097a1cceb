"""Scoring by models of XGBoost, LightGBM, scikit-learn and ONNX Runtime: batches in, scores out, over Arrow Flight.

::

    service = godwit.scoring.serve({"filter": booster}, "127.0.0.1:0")
    with godwit.scoring.connect(service.url) as scorer:
        table = scorer.score(session.variants("S"), keep=["contig", "position"])

Libraries are imported when a model of theirs is served. ``python -m godwit.scoring MODELS`` is a service of its own.
"""

from ._client import Scorer, Stream, connect
from ._models import Function, Model
from ._service import Service, serve

__all__ = ["Function", "Model", "Scorer", "Service", "Stream", "connect", "serve"]
