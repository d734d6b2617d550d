"""Pictures and pages from plain data: HTML and SVG, without a script, a font or anything else from a network."""
