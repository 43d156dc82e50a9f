%% @private
%% @doc The field Accept-Encoding: which codings of a file a client takes (RFC 9110, 12.5.3).
-module(weir_http_coding).

-export([accepted/1]).

%% @doc Those of br and gzip that the client takes, the better one first, with the endings of files in them.
-spec accepted(binary() | undefined) -> [{Coding :: binary(), Ending :: binary()}].
accepted(undefined) ->
    [];
accepted(Field) ->
    Weights = maps:from_list([weight(binary:split(Text, <<";">>)) || Text <- binary:split(Field, <<",">>, [global])]),
    Others = maps:get(<<"*">>, Weights, false),
    [Known || {Coding, _} = Known <- [{<<"br">>, <<".br">>}, {<<"gzip">>, <<".gz">>}], maps:get(Coding, Weights, Others)].

%% What is wrong with a weight is not worth a refusal: the file as it is is always right.
weight([Coding]) -> {name(Coding), true};
weight([Coding, Weight]) -> {name(Coding), re:run(Weight, "^\\s*q\\s*=\\s*(0?\\.0*[1-9]\\d*|1(\\.0*)?)\\s*$", [caseless]) =/= nomatch}.

name(Coding) -> string:lowercase(string:trim(Coding, both, " \t")).
