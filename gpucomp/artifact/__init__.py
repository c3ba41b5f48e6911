"""The parts of a compiled model and how they are saved: plan, weights, tensor maps, manifest, container."""
