"""The applications: their packages on PyPI, and what each is given. Imported in their environment, where they are installed.

Each function makes the application and its inputs, and returns calls that give its answers as plain data. There
``box`` is in pixels, ``time`` in seconds and ``score`` from 0 to 1; everything else is compared exactly.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
import wave
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Calls = list[Callable[[], Any]]
SENTENCES = (
    "The quick brown fox jumps over the lazy dog",
    "Invoice 2024-0173, total 1,284.50 EUR",
    "Compilers turn models into kernels",
    "Shapes that change: 48 x 320, 32 x 1536",
    "Please return by 14 March, room B-217",
    "Pack my box with five dozen liquor jugs",
)
ARABIC = (
    "ذهب الولد الى المدرسة في الصباح",
    "العلم نور والجهل ظلام",
    "قرأت كتابا جديدا عن تاريخ المدينة",
    "السلام عليكم ورحمة الله وبركاته",
    "يعمل المهندس في شركة كبيرة خارج البلاد منذ عشر سنوات",
)
RATE = 16_000  # samples of sound per second


@dataclass(frozen=True)
class Application:
    """``packages`` are installed without what they depend on; ``needs`` with that."""

    packages: tuple[str, ...]
    needs: tuple[str, ...]
    make: Callable[[], Calls]


def picture(number: int, width: int = 640, height: int = 360) -> np.ndarray:
    """A page with a few lines of text: [height, width, 3] of bytes."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (width, height), (250, 250, 245))
    draw = ImageDraw.Draw(page)
    for line in range(5):
        text = SENTENCES[(number + line) % len(SENTENCES)]
        size = 18 + 4 * ((number + line) % 3)
        draw.text((20 + 15 * line, 15 + 66 * line), text, fill=(20, 20, 60), font=ImageFont.load_default(size))
    return np.asarray(page)


def pages() -> list[np.ndarray]:
    return [picture(k, 560 + 48 * k, 360) for k in range(4)]


def scene(number: int, width: int = 480, height: int = 400) -> np.ndarray:
    """Faces and figures, drawn with few means: [height, width, 3] of bytes, as BGR."""
    from PIL import Image, ImageDraw, ImageFilter

    page = Image.new("RGB", (width, height), (90 + 20 * number, 130, 160))
    draw = ImageDraw.Draw(page)
    for k in range(2):
        x, y, r = 130 + 210 * k, 120 + 10 * number, 62 - 8 * k
        skin = (224 - 22 * k, 172 - 10 * number, 138)
        draw.ellipse((x - r, y - 1.3 * r, x + r, y + 1.3 * r), fill=skin)
        draw.pieslice((x - 1.1 * r, y - 1.6 * r, x + 1.1 * r, y + 0.6 * r), 180, 360, fill=(60, 40, 30))
        for side in (-1, 1):
            draw.ellipse((x + side * 0.4 * r - 9, y - 12, x + side * 0.4 * r + 9, y - 2), fill=(250, 250, 250))
            draw.ellipse((x + side * 0.4 * r - 4, y - 11, x + side * 0.4 * r + 4, y - 3), fill=(40, 30, 20))
        draw.line((x, y, x - 6, y + 22, x + 5, y + 24), fill=(170, 120, 95), width=3)
        draw.arc((x - 22, y + 24, x + 22, y + 50), 20, 160, fill=(160, 60, 70), width=6)
        draw.polygon((x - 1.6 * r, height, x - r, y + 1.5 * r, x + r, y + 1.5 * r, x + 1.6 * r, height), fill=skin)
        draw.rectangle((x - 14, y + 1.1 * r, x + 14, y + 1.6 * r), fill=skin)
    return np.ascontiguousarray(np.asarray(page.filter(ImageFilter.GaussianBlur(1.2)))[:, :, ::-1])


def png(array: np.ndarray) -> bytes:
    from PIL import Image

    found = io.BytesIO()
    Image.fromarray(array).save(found, "PNG")
    return found.getvalue()


def sound(number: int, seconds: float) -> np.ndarray:
    """Something like speech: bursts of a few formants over a voice's pitch, with silence between them; f32 of -1 to 1."""
    rng = np.random.default_rng(number)
    t = np.arange(int(seconds * RATE)) / RATE
    voice = np.zeros_like(t)
    begin = 0.4
    while begin < seconds - 0.6:
        length, pitch = rng.uniform(0.25, 0.7), rng.uniform(95, 210)
        inside = (t >= begin) & (t < begin + length)
        phase = np.cumsum(pitch * (1 + 0.06 * np.sin(2 * math.pi * 4 * t))) / RATE
        for harmonic in range(1, 24):
            gain = sum(math.exp(-(((harmonic * pitch - f) / 160) ** 2)) for f in rng.uniform(300, 2800, 3)) + 0.02
            voice += inside * gain / 6 * np.sin(2 * math.pi * harmonic * phase)
        voice[inside] *= np.hanning(int(inside.sum()))
        begin += length + rng.uniform(0.05, 0.9)
    return np.clip(voice + rng.normal(0, 0.002, t.size), -1, 1).astype(np.float32)


def tones(path: Path, notes: Sequence[int], rate: int = 22_050) -> Path:
    """A file of notes, by their MIDI numbers, half a second each."""
    t = np.arange(rate // 2) / rate
    envelope = np.minimum(1, 20 * t) * np.exp(-3 * t)
    pitches = [440 * 2 ** ((note - 69) / 12) for note in notes]
    parts = [sum(np.sin(2 * math.pi * f * k * t) / k for k in (1, 2, 3)) * envelope / 2 for f in pitches]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.concatenate(parts) * 32_000).clip(-32_767, 32_767).astype("<i2").tobytes())
    return path


def rapidocr_onnxruntime() -> Calls:
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR()

    def read(page: np.ndarray) -> Any:
        lines, _ = engine(page)
        return [{"box": np.asarray(box).tolist(), "text": text, "score": float(score)} for box, text, score in lines]

    return [lambda page=page: read(page) for page in pages()]


def rapidocr() -> Calls:
    from rapidocr import RapidOCR

    engine = RapidOCR()

    def read(page: np.ndarray) -> Any:
        found = engine(page)
        lines = zip(found.boxes, found.txts, found.scores, strict=True)
        return [{"box": np.asarray(box).tolist(), "text": text, "score": float(score)} for box, text, score in lines]

    return [lambda page=page: read(page) for page in pages()]


def magika() -> Calls:
    from magika import Magika

    engine = Magika()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt", (2024, 1, 2, 3, 4, 6)), "hello " * 200)
    library = Path(io.__file__).parent
    contents = [png(picture(1)), packed.getvalue(), Path(sys.executable).read_bytes()[: 1 << 20]]
    contents += [
        (library / name).read_bytes() for name in ("json/decoder.py", "this.py", "socket.py", "tkinter/ttk.py")
    ]
    contents += [b'{"a": [1, 2, {"b": null}]}\n' * 40, b"<html><body><p>text</p></body></html>\n" * 30]

    def told(content: bytes) -> Any:
        found = engine.identify_bytes(content)
        return {"label": str(found.output.label), "score": float(found.score)}

    return [lambda content=content: told(content) for content in contents]


def nudenet() -> Calls:
    from nudenet import NudeDetector

    engine = NudeDetector()

    def found(image: np.ndarray) -> Any:
        return [{"class": d["class"], "score": float(d["score"]), "box": list(d["box"])} for d in engine.detect(image)]

    scenes = [scene(k, 480 + 64 * k, 400) for k in range(4)]
    return [lambda image=image: found(image) for image in scenes]


def ddddocr() -> Calls:
    from ddddocr import DdddOcr

    reads, finds = DdddOcr(show_ad=False), DdddOcr(det=True, ocr=False, show_ad=False)

    def captcha(text: str, number: int) -> bytes:
        from PIL import Image, ImageDraw, ImageFont

        image = Image.new("RGB", (130 + 12 * number, 48), (240, 240, 232))
        draw = ImageDraw.Draw(image)
        for k, letter in enumerate(text):
            draw.text(
                (10 + 28 * k, 4 + 5 * (k % 2)), letter, fill=(40, 60 + 30 * k, 120), font=ImageFont.load_default(32)
            )
        draw.line((0, 12, image.width, 38), fill=(150, 150, 150))
        return png(np.asarray(image))

    images = [captcha(text, k) for k, text in enumerate(("8F3K", "w2mh", "PQ7D", "45Z9"))]
    drawn = [png(picture(k, 400, 300)) for k in range(2)]
    calls: Calls = [lambda image=image: {"text": reads.classification(image)} for image in images]
    return calls + [lambda page=page: [{"box": box} for box in finds.detection(page)] for page in drawn]


def silero_vad() -> Calls:
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    engine = load_silero_vad(onnx=True)

    def speech(samples: Any) -> Any:
        spoken = get_speech_timestamps(samples, engine, threshold=0.1, return_seconds=True)
        return [{"time": [float(one["start"]), float(one["end"])]} for one in spoken]

    def chances(samples: Any) -> Any:
        engine.reset_states()
        return [{"score": float(engine(samples[k : k + 512], RATE))} for k in range(0, len(samples) - 512, 512)]

    first, second, third = (torch.from_numpy(sound(k, seconds)) for k, seconds in ((1, 12.0), (2, 12.0), (3, 3.0)))
    return [lambda: speech(first), lambda: speech(second), lambda: chances(third)]


def basic_pitch() -> Calls:
    from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
    from basic_pitch.inference import Model, predict

    engine = Model(build_icassp_2022_model_path(FilenameSuffix.onnx))
    folder = Path(tempfile.mkdtemp(prefix="tones-"))
    melodies = ((60, 64, 67, 72, 67, 64, 60, 55), (57, 60, 64, 69, 68, 64))
    files = [tones(folder / f"{k}.wav", notes) for k, notes in enumerate(melodies)]

    def notes(file: Path) -> Any:
        _, _, found = predict(file, engine)
        return [
            {"time": [float(start), float(end)], "pitch": int(pitch), "score": float(amplitude)}
            for start, end, pitch, amplitude, _ in sorted(found, key=lambda note: (note[0], note[2]))
        ]

    return [lambda file=file: notes(file) for file in files]


def text2tashkeel() -> Calls:
    from text2tashkeel import Diacritizer

    engines = [Diacritizer(name) for name in ("rawi-ensemble", "bilstm-int8", "rawi-int8")]
    return [
        lambda e=e, text=text: {"text": e(text) if callable(e) else e.diacritize(text)}
        for e in engines
        for text in ARABIC
    ]


VISION = ("opencv-python-headless", "pillow", "pyclipper", "shapely", "pyyaml", "six", "tqdm")
APPLICATIONS = {
    "rapidocr_onnxruntime": Application(("rapidocr-onnxruntime==1.4.4",), VISION, rapidocr_onnxruntime),
    "rapidocr": Application(("rapidocr==3.10.0",), (*VISION, "omegaconf", "requests", "colorlog"), rapidocr),
    "magika": Application(("magika==1.0.3",), ("click", "python-dotenv", "pillow"), magika),
    "nudenet": Application(("nudenet==3.4.2",), VISION, nudenet),
    "ddddocr": Application(("ddddocr==1.6.1",), VISION, ddddocr),
    "silero_vad": Application(("silero-vad==6.2.3",), ("torch==2.13.0", "packaging"), silero_vad),
    "basic_pitch": Application(
        ("basic-pitch==0.4.0",),
        ("scipy", "librosa", "pretty_midi", "mir_eval", "resampy<0.4.3", "setuptools<81"),
        basic_pitch,
    ),
    "text2tashkeel": Application(("text2tashkeel==0.1.0",), (), text2tashkeel),
}
