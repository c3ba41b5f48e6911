"""A model server with the Open Inference Protocol (KServe v2) over HTTP: ``gpucomp serve``.

A request's way: ``connection`` and ``by_httptools`` (limits of a connection), ``app`` (routes), ``body`` (reads and inflates,
within limits), ``protocol`` (JSON and binary tensors to arrays), ``scheduler`` (queue, batches, instances), and back. ``ending``
answers what the end of the server cuts off.

``repository`` says what is in the folder, ``model`` makes it ready to run, ``registry`` holds what is served.
"""
