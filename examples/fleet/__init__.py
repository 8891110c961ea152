"""A fleet of buses: five services, and the same results from pandas to compare them with.

python -m examples.fleet                   # two hours of invented buses
python -m examples.fleet day.csv.gz        # a day of a real fleet, as CapMetrics published it
python -m examples.fleet --services changed.yaml day.csv.gz
"""
