"""Speed, memory and scale of the learners, as ratios against baselines in the same run: ``make bench``.

`passes` times single passes over rows, `fits` whole fits and quality against time, `trees` fits of trees and forests,
`aggregations` those of many samples next to QuaPy's code, `processes` memory and the start of a process, `scale`
streams and a Dask cluster, `cost` what follows for many machines; `tables` prints, keeps and draws what they found.
"""
