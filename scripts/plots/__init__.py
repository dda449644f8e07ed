"""What the scripts that draw results have in common.

command   errors as one line on stderr, exit codes, writing files whole
packages  packages from outside of Python's own library
schema    what is wrong with a document, by its schema in data/schema/
results   result files and tables of foreign results -> runs and rows
upgrade   results of the format before today's, as today's
samples   whether figures follow from the samples beside them
metrics   what a row measured, with intervals; which settings differ among rows
labels    what rows are called where several stand together
settings  what rows have in common, for the line below a title
sweeps    rows as the lines of one picture
words     numbers and sentences as the program prints them
canvas    sheets that matplotlib draws: text that fits, two themes, files
charts    lines, bars and stacked bars on them; it and canvas take a second to import
figures   which rows become which bars and lines
page      the frame of the HTML page of report.py; its panels, verdicts and LaTeX table
"""
