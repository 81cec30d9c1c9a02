"""Experiments on a finished model: does its depth follow difficulty, and what does new text cost the old?"""
