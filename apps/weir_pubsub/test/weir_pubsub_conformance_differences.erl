%% Where our responses to the script differ from Nchan's, and why.
-module(weir_pubsub_conformance_differences).

-export([differences/2, reason/2, reasons/0]).

%% Parts that differ: `{Part, Theirs, Ours}'.
differences(Theirs, Ours) when length(Theirs) =:= length(Ours) ->
    lists:append([parts(Their, Our) || {Their, Our} <- lists:zip(Theirs, Ours)]);
differences(Theirs, Ours) ->
    [{steps, length(Theirs), length(Ours)}].

parts([{frame, _} | _] = Theirs, Ours) ->
    [{frame, Their, Our} || {{frame, Their}, {frame, Our}} <- lists:zip(Theirs, Ours), Their =/= Our];
parts([{status, none}], Ours) ->
    [{status, none, proplists:get_value(status, Ours)}];
parts(Theirs, Ours) ->
    Names = lists:usort([Name || {Name, _} <- Theirs ++ Ours]),
    Value = fun(Name, Parts) -> proplists:get_value(Name, Parts, none) end,
    [{Name, Value(Name, Theirs), Value(Name, Ours)} || Name <- Names, Value(Name, Theirs) =/= Value(Name, Ours)].

%% Returns why a part differs, or `none'.
reason(Case, Difference) ->
    case [Reason || {Fits, Reason} <- reasons(), Fits(Case, Difference)] of
        [Reason | _] -> Reason;
        [] -> none
    end.

reasons() ->
    [
        {
            fun(Case, _) -> lists:prefix("HEAD", Case) orelse lists:prefix("PATCH", Case) end,
            "Nchan closes the connection; here HEAD is GET without the body, and other methods get 403"
        },
        {
            fun(Case, {Part, _, _}) ->
                Case =:= "one subscriber at most: event stream" andalso Part =/= <<"transfer-encoding">>
            end,
            "an event stream has begun when it is refused: a comment at its end says so"
        },
        {
            fun(Case, {Part, _, _}) -> Case =:= "one subscriber at most: long poll" andalso Part =:= <<"vary">> end,
            "a refusal does not depend on these fields"
        },
        {
            fun(Case, {Part, _, _}) -> Case =:= "none is kept: who waits gets it" andalso Part =:= body end,
            "a client that waits is a subscriber when the message comes, also where none is kept"
        },
        {
            fun(_, {Part, _, _}) -> Part =:= <<"transfer-encoding">> end,
            "a body whose end is not known comes in chunks: a client can tell the end from a connection that broke"
        },
        {fun(_, {Part, _, _}) -> Part =:= <<"cache-control">> end, "no cache on the way keeps an event stream"},
        {
            fun(_, {Part, _, _}) -> Part =:= <<"content-length">> end,
            "Content-Length is sent only with a body: not with 101 and 304"
        },
        {
            fun
                (_, {body, Their, Our}) -> is_end_of_stream(Their, Our);
                (_, _) -> false
            end,
            "the last line of an event stream is a comment by the standard, with a space"
        },
        {
            fun
                (Case, {body, _, _}) -> Case =:= "event stream: CR LF in a message";
                (_, _) -> false
            end,
            "CR LF ends a line of an event stream: the standard says so, and browsers do"
        },
        {
            fun(Case, _) -> lists:prefix("several: delete", Case) end,
            "a channel that was deleted is reported, and one that did not exist gets 404"
        },
        {
            fun(Case, _) -> lists:prefix("several: 255", Case) end,
            "the limit of 1,024 bytes is for each name, not for all names together"
        },
        {
            fun(_, {Part, Their, _}) -> Part =:= <<"sec-websocket-protocol">> andalso Their =:= <<>> end,
            "where no subprotocol is agreed upon there is no such field: RFC 6455"
        },
        {
            fun(Case, {Part, _, _}) ->
                Case =:= "several: an id of another number" andalso lists:member(Part, [<<"etag">>, <<"vary">>])
            end,
            "an id that is wrong is not repeated"
        },
        {
            fun(Case, {Part, _, _}) -> lists:prefix("permessage-deflate", Case) andalso Part =/= body end,
            "the window is as large as the client allows, and no context is kept; "
            "a window that is too small is not agreed upon"
        },
        {
            fun
                (Case, {body, _, _}) -> lists:prefix("permessage-deflate", Case);
                (_, _) -> false
            end,
            "the extension is refused, not the handshake"
        }
    ].

is_end_of_stream(Their, Our) ->
    binary:replace(Their, [<<"\n:408: ">>, <<"\n:410: ">>], <<"\n: 4xx: ">>) =:=
        binary:replace(Our, [<<"\n: 408: ">>, <<"\n: 410: ">>], <<"\n: 4xx: ">>).
