"""The page's pure parts, run in the browser: codec (against the Python one), jitter buffer, resampler."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from protocol.errors import CloseCode
from protocol.media import MediaFlags, MediaKind, MediaUnit, VideoEncoding, decode_media, encode_media

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

# A jitter buffer at 16 kHz, driven by blocks of 64 samples (4 ms); units are 160 ms of a constant level.
JITTER = """
const { JitterBuffer } = await import('/page/jitter.js');
const jitter = new JitterBuffer(16000);
const heard = [];
const block = new Float32Array(64);
const unit = (number, level = 0.5) => jitter.push(number * 160000, new Float32Array(2560).fill(level));
const play = (ms) => { for (let at = 0; at < ms; at += 4) { jitter.take(block); heard.push(...block); } };
const steepest = () => heard.reduce((most, x, i) => Math.max(most, i ? Math.abs(x - heard[i - 1]) : 0), 0);
"""


@pytest.fixture
def run(page_url: str, browse: Callable[..., Page]) -> Callable[[str], Any]:
    """Run the body of an async function in the page; gives what it returns."""
    page = browse(page_url)
    return lambda body: page.evaluate(f"async () => {{ {body} }}")


def test_both_codecs_agree(run: Callable[[str], Any]) -> None:
    sent = run("""
        const { encodeUnit } = await import('/page/protocol.js');
        const bytes = encodeUnit({ epoch: 3, unit: 2 ** 33, ptsUs: 160000, pcm: Int16Array.of(1, -2),
                                   frames: [Uint8Array.of(7), Uint8Array.of()] });
        return Array.from(new Uint8Array(bytes));
    """)
    assert decode_media(bytes(sent)) == MediaUnit(
        kind=MediaKind.USER,
        epoch=3,
        unit=2**33,
        pts_us=160_000,
        audio=b"\x01\x00\xfe\xff",
        frames=(b"\x07", b""),
    )
    unit = MediaUnit(
        kind=MediaKind.AGENT,
        flags=MediaFlags.LAST,
        epoch=1,
        unit=9,
        pts_us=2**40,
        audio=b"\xff\x7f",
        frames=(b"ab",),
        video_codec=VideoEncoding.JPEG,
    )
    encoded = base64.b64encode(encode_media(unit)).decode()
    received = run(f"""
        const {{ decodeUnit }} = await import('/page/protocol.js');
        const unit = decodeUnit(Uint8Array.from(atob('{encoded}'), (c) => c.charCodeAt(0)).buffer);
        return {{ ...unit, pcm: Array.from(unit.pcm), frames: unit.frames.map((f) => Array.from(f)) }};
    """)
    assert received == {
        "kind": 2, "flags": 4, "epoch": 1, "unit": 9, "ptsUs": 2**40, "pcm": [32767], "frames": [[97, 98]],
    }  # fmt: skip


def test_damaged_units_are_errors_in_words(run: Callable[[str], Any]) -> None:
    encoded = base64.b64encode(
        encode_media(MediaUnit(kind=MediaKind.AGENT, unit=0, pts_us=0, audio=b"ab"))
    ).decode()
    said = run(f"""
        const {{ decodeUnit }} = await import('/page/protocol.js');
        const good = Uint8Array.from(atob('{encoded}'), (c) => c.charCodeAt(0));
        const said = [];
        for (let cut = 0; cut < good.length; cut++) {{
            try {{ decodeUnit(good.slice(0, cut).buffer); said.push('accepted'); }}
            catch (error) {{ said.push(error.message); }}
        }}
        return said;
    """)
    assert len(said) == 33
    assert all("message" in words for words in said)


def test_every_close_code_has_words(run: Callable[[str], Any]) -> None:
    codes = [int(code) for code in CloseCode]
    said = run(f"""
        const {{ explainEnd }} = await import('/page/words.js');
        return [...{codes}, 1006].map((code) => explainEnd(code, '', true));
    """)
    assert all("was closed (" not in words for words in said)
    assert said[-1] == "The connection was lost."


def test_even_arrivals_play_without_a_gap(run: Callable[[str], Any]) -> None:
    result = run(
        JITTER
        + """
        jitter.release();
        for (let number = 0; number < 20; number++) { unit(number); play(160); }
        const first = heard.findIndex((x) => x > 0);
        const gap = heard.slice(first + 200).some((x) => x !== 0.5);
        const { underruns, positionUs, speed } = jitter;
        return { underruns, first, gap, positionUs, speed };
    """
    )
    assert result["underruns"] == 0
    assert not result["gap"]
    assert abs(result["first"] / 16 - 80) <= 4, "starts after its head start"
    assert abs(result["positionUs"] - (3_200_000 - 80_000)) <= 5000
    assert result["speed"] == 1


def test_nothing_plays_before_the_pictures_are_there(run: Callable[[str], Any]) -> None:
    result = run(
        JITTER
        + """
        unit(5); play(400);
        const before = heard.some((x) => x !== 0);
        jitter.release(); play(160);
        return { before, after: heard.some((x) => x !== 0), positionUs: jitter.positionUs };
    """
    )
    assert result["before"] is False
    assert result["after"] is True
    assert result["positionUs"] >= 800_000


def test_an_underrun_fades_out_and_in_and_is_counted(run: Callable[[str], Any]) -> None:
    result = run(
        JITTER
        + """
        jitter.release();
        unit(0); play(600);
        unit(1); unit(2); play(300);
        const { underruns, headStartMs } = jitter;
        return { underruns, steepest: steepest(), now: heard.at(-1), headStartMs };
    """
    )
    assert result["underruns"] == 1
    assert result["steepest"] < 0.01, "no click"
    assert result["now"] == 0.5
    assert result["headStartMs"] > 80, "it waits a little longer the next time"


def test_a_flush_fades_quickly_and_is_no_underrun(run: Callable[[str], Any]) -> None:
    result = run(
        JITTER
        + """
        jitter.release();
        unit(0); unit(1); play(200);
        jitter.flush();
        const at = heard.length; play(40);
        const silent = heard.slice(at + 8 * 16 + 64).every((x) => x === 0);
        unit(7, 0.25); play(200);
        return { silent, steepest: steepest(), underruns: jitter.underruns, now: heard.at(-1) };
    """
    )
    assert result == {"silent": True, "steepest": pytest.approx(0, abs=0.01), "underruns": 0, "now": 0.25}


def test_a_burst_after_a_stall_does_not_lag_for_ever(run: Callable[[str], Any]) -> None:
    result = run(
        JITTER
        + """
        jitter.release();
        unit(0); play(2000);
        for (let number = 1; number < 13; number++) unit(number);
        play(40);
        return { bufferedMs: jitter.bufferedMs, positionUs: jitter.positionUs };
    """
    )
    assert result["bufferedMs"] < 1200
    assert result["positionUs"] > 1_000_000


def test_a_backlog_is_played_a_little_faster(run: Callable[[str], Any]) -> None:
    speed = run(
        JITTER
        + """
        jitter.release();
        for (let number = 0; number < 3; number++) unit(number);
        for (let number = 3; number < 20; number++) { unit(number); play(160); }
        return jitter.speed;
    """
    )
    assert 1 < speed <= 1.02


RESAMPLE = """
const { Resampler } = await import('/page/resample.js');
const tone = (rate, hz, count) =>
    Float32Array.from({ length: count }, (_, i) => Math.sin(2 * Math.PI * hz * i / rate));
const convert = (from, to, samples, block) => {
    const resampler = new Resampler(from, to);
    const result = [];
    const out = new Float32Array(4096);
    for (let at = 0; at < samples.length; at += block) {
        resampler.write(samples.subarray(at, at + block));
        for (let got; (got = resampler.read(out)); ) result.push(...out.slice(0, got));
    }
    return result;
};
const rms = (samples) => Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / samples.length);
"""


@pytest.mark.parametrize(("source", "target"), [(16000, 48000), (48000, 16000), (44100, 16000)])
def test_a_tone_comes_through_and_nothing_else(run: Callable[[str], Any], source: int, target: int) -> None:
    result = run(
        RESAMPLE
        + f"""
        const heard = convert({source}, {target}, tone({source}, 1000, {source}), 128).slice(500);
        const wanted = tone({target}, 1000, {target}).slice(500);
        const fault = rms(heard.map((x, i) => x - wanted[i]));
        const whole = convert({source}, {target}, tone({source}, 1000, {source}), {source}).slice(500);
        return {{ fault, same: whole.every((x, i) => x === heard[i]), length: heard.length }};
    """
    )
    assert result["fault"] < 0.003, "under −47 dB"
    assert result["same"], "streamed in blocks equals all at once"
    assert abs(result["length"] - (target - 500)) < 64


def test_what_would_fold_over_is_removed(run: Callable[[str], Any]) -> None:
    assert (
        run(RESAMPLE + "return rms(convert(48000, 16000, tone(48000, 11000, 48000), 128).slice(500))") < 0.003
    )
