"""What ``PhaseTagger`` puts around one ``fit`` of Keras, and takes away again."""
