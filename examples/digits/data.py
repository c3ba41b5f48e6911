"""Scikit-learn's bundled handwritten digits in one fixed split; no network and no training is here."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HELD_BACK = 0.25
SEED = 2024
BRIGHTEST = 16.0  # pixels count the ink of 4x4 blocks

Digits = tuple[np.ndarray, np.ndarray]


def training() -> Digits:
    """Images f32[1347, 1, 8, 8] in 0..1 and labels i64[1347]."""
    return _split()[0]


def held_back() -> Digits:
    """Images f32[450, 1, 8, 8] in 0..1 and labels i64[450] that training never sees, in equal proportions."""
    return _split()[1]


def _split() -> tuple[Digits, Digits]:
    digits = load_digits()
    images = (digits.images / BRIGHTEST).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=HELD_BACK, random_state=SEED, stratify=labels)
    return (images[train], labels[train]), (images[test], labels[test])
