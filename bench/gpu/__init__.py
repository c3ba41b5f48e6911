"""What is run on a machine with a CUDA GPU: checks and measurements that need no network."""
