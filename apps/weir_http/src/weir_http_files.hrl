%% A file below a directory, by the names on the way to it.
-record(below, {root :: binary(), names :: [binary()], links :: refuse | follow}).

%% A file that is open: as it is, or in a coding.
-record(variant, {
    file :: weir_file:file(),
    size :: non_neg_integer(),
    %% Seconds since 1970.
    modified :: integer(),
    tag :: binary(),
    coding :: identity | binary(),
    type :: binary(),
    %% Fields that say when it is another: ETag, Last-Modified and Vary.
    validators :: [{binary(), binary()}]
}).
