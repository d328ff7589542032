"""Predicts memory and step of a training by ways to keep its states, from the shape of the model
and the rates of the machine.
"""
