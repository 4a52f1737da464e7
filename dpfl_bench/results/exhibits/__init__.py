"""Figures and tables of runs, as a YAML file describes them.

| file | what it is |
|---|---|
| figure.py | a figure: its keys, its marks, its pictures |
| table.py | a table: its keys, its rows; the numbers of figures as rows |
"""
