"""Direct depthwise convolutions and pools."""
