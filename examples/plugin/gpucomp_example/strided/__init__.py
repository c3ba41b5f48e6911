"""The engine ``loops/strided``: few work-groups, each of which walks over the whole domain in strides."""
