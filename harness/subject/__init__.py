"""The host of `lockstep suite --subject`: a rank, or the reference, in Python.

It speaks the protocol of harness/protocol/message.h, as fixtures/rank_host does in C++, with the same models. It is no
package that anybody installs: main.py loads it by its path, under the name lockstep_subject, so that nothing of it
lies in the way of the modules of the user.

    main.py        the warm parent, or one conversation
    warm.py        forks hosts
    lines.py       the conversation
    rank.py        a rank: model, wrapper, step
    reference.py   the same model in one process
    models.py      the catalogue; batch_norm_models.py, buffer_models.py and critic_models.py have theirs
    model_base.py  what models are made of
    model_values.py  what a model holds
    epochs.py      samplers
    subject.py     finds what the user has named, and says what it declares
    shapes.py      which adapter fits, by inspection
    wrappers.py    the adapters
"""
