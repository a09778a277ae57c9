#!/bin/sh
# Stands in for slapo-worker in tests: does what the test says.
eval "$SAY"
