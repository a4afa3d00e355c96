"""A self-contained HTML page with charts, tables, and sliders over precomputed results.

altair writes the charts as Vega-Lite. vl-convert bundles its library into the page (0.9 MB) and
draws the same charts as static SVG without a browser, for readers without scripts. SVG has text and
labels for screen readers, and takes its colours from the theme of the page; Vega's interpreter of
expressions needs no `eval`, so that the policy of the page forbids it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
