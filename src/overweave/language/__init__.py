"""The language of content: values, predicates, filters, publications, their text and wire forms and their relations."""
