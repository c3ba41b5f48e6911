"""ImageDecoder: Pillow decodes constant streams at compile time. Nothing else needs Pillow."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np

from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import checked_size, static
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant

FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
# exceptions that Pillow raises for damaged streams
BROKEN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@translates("ImageDecoder", since=20)
def image_decoder(stream: Value, *, pixel_format: str) -> Value:
    """u8[height, width, channels], without pixels if the stream is not an image."""
    if pixel_format not in MODES:
        raise ValueError(f"pixel_format {', '.join(MODES)} expected, got {pixel_format!r}")
    data = static(stream, "encoded stream").tobytes()
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError("images are decoded by Pillow, which is not installed: pip install pillow") from None
    channels = 1 if pixel_format == "Grayscale" else 3
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is checked below
            image = Image.open(io.BytesIO(data), formats=FORMATS)  # reads only the header
        with image:
            checked_size(image.width * image.height, max(4, channels))
            pixels = np.asarray(image.convert(MODES[pixel_format])).reshape(image.height, image.width, channels)
    except (*BROKEN, Image.DecompressionBombError):
        pixels = np.zeros((0, 0, channels), np.uint8)
    return constant(np.ascontiguousarray(pixels[..., ::-1] if pixel_format == "BGR" else pixels))
