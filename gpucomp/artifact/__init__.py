"""What a compiled model consists of and how it is saved: plan, weights, tensor maps, manifest, container."""
