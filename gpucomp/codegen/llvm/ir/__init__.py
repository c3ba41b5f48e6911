"""LLVM IR as text: types, arithmetic, functions."""
