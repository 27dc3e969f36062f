"""Scripts that neither train nor predict: conversion, export, vocabularies."""
