"""The analytic model beside published measurements of GPUs."""
