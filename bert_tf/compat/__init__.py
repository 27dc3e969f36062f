"""What programs import from the scripts of the original release: a module for each script.

Names, signatures and results are the original's. The scripts themselves give these names, too:
`from run_classifier import MrpcProcessor`.
"""
