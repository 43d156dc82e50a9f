%% A file below a directory, by the names on the path to it.
-record(below, {root :: binary(), names :: [binary()], links :: refuse | follow}).

%% An open file: the original, or a compressed variant.
-record(variant, {
    file :: weir_file:file(),
    size :: non_neg_integer(),
    %% Seconds since 1970.
    modified :: integer(),
    tag :: binary(),
    coding :: identity | binary(),
    type :: binary(),
    %% The fields ETag, Last-Modified and Vary.
    validators :: [{binary(), binary()}]
}).
