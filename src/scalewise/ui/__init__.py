"""The page: see it, turn the knobs, share it. A local server over the public Python API.

    scalewise ui                     # opens the page in the browser
    app = scalewise.ui.server.create(token="...", port=8765)

The page has no physics of its own: every number it shows was computed by the functions that the
command line and Python call, and can be had from them to the last digit.
"""
