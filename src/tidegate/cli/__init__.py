"""The command line.

`main` puts the commands together. `commands` has one file per command, and `demo` the demo with its files. `profile`
reads the YAML file that says what an installation runs on, one file per key. `data_folder` opens what a data folder
holds. `processes` runs gateways and services. `input` has the options that commands share, and `output` what they print
and log. All rules live in the packages below this one.
"""
