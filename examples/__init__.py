"""Programs that show gpucomp at work; nothing here is installed with the package."""
