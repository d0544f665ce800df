import shutil

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Request
from training.data.split import Split
from training.data.voices.bank import QUICK
from training.data.voices.plan import plan
from training.data.voices.requests import WORDINGS, begins_or_ends_as_request, plain
from training.errors import TrainingError

needs_voices = pytest.mark.skipif(
    shutil.which("flite") is None or shutil.which("espeak-ng") is None,
    reason="flite and espeak-ng are not installed",
)


@needs_voices
def test_a_plan_is_fair_and_keeps_voices_apart():
    jobs = plan(400, 200, 1, QUICK, Split.TRAIN)
    counts = np.bincount([job.request for job in jobs])
    assert list(counts) == [200] + [20] * 20
    assert not any(job.voice.held_out for job in jobs)
    assert all(job.voice.held_out for job in plan(60, 0, 1, QUICK, Split.JUDGE))
    assert jobs == plan(400, 200, 1, QUICK, Split.TRAIN)
    assert jobs != plan(400, 200, 2, QUICK, Split.TRAIN)
    assert {job.voice.family for job in jobs} <= set(QUICK)
    wordings = {" ".join(plain(text)) for texts in WORDINGS.values() for text in texts}
    for job in jobs:
        if job.request is Request.NONE:
            assert " ".join(plain(job.text)) not in wordings
            assert job.near_miss or not begins_or_ends_as_request(job.text)
    near = [job.near_miss for job in jobs if job.request is Request.NONE]
    assert 0.15 < np.mean(near) < 0.35


@needs_voices
def test_no_family_is_a_fault():
    with pytest.raises(TrainingError, match="none of the voices"):
        plan(4, 0, 4, ("nobody",), Split.JUDGE)
