"""THESIS 7.3: resource allocation, its scenarios and claims."""
