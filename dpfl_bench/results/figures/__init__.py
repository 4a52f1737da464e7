"""Figures for publication, drawn from plain data, never from runs.

| file | what it is |
|---|---|
| style.py | one look: colours, markers, names, widths |
| panels.py | marks in, a grid of panels out |
| frame.py | what stands around the panels: title, labels of axes, legend, note |
| axes.py | ticks and scales of a panel |
| kinds.py | how the marks of one panel are drawn |
| files.py | a figure as PDF, SVG and PNG, byte for byte the same |
"""
