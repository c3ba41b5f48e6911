"""A gpucomp plug-in with an operator, a rewrite rule, a kernel pass, an engine and a sampler."""

from gpucomp.plugins import Plugin


def register(plugin: Plugin) -> None:
    """Called once, when the user names the plug-in."""
    from gpucomp_example.kernel_passes import NAME_KERNELS
    from gpucomp_example.rules import cube_of_negative  # it imports the operator, which adds itself
    from gpucomp_example.strided.space import FAMILY

    plugin.add_rule(cube_of_negative)
    plugin.add_kernel_pass(NAME_KERNELS)
    plugin.add_engine("c", FAMILY)
    plugin.add_sampler("hill-climb", "gpucomp_example.samplers:HillClimb")
