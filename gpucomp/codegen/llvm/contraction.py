from typing import Any
def emit_contraction(*a: Any) -> tuple[str, int]:
    raise NotImplementedError
