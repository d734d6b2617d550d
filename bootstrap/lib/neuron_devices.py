"""Prints the indices of the Neuron devices in neuron-ls' JSON (stdin), separated by spaces.

Up to Neuron 2.33 that is a list of devices; later it is an object with the devices somewhere inside it.
"""

import json
import sys


def devices(node):
    if isinstance(node, dict):
        if "neuron_device" in node:
            return [int(node["neuron_device"])]
        return [index for value in node.values() for index in devices(value)]
    if isinstance(node, list):
        return [index for value in node for index in devices(value)]
    return []


print(*sorted(set(devices(json.load(sys.stdin)))))
