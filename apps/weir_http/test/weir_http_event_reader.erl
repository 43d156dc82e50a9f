%% Parses an event stream like a browser: the algorithm of the WHATWG's specification, 9.2.6, line by line.
-module(weir_http_event_reader).

-export([read/1, body/1]).

%% Returns [{Name, Data, LastId}].
read(Bytes) ->
    Normal = binary:replace(binary:replace(Bytes, <<"\r\n">>, <<"\n">>, [global]), <<"\r">>, <<"\n">>, [global]),
    %% An unfinished line is ignored.
    Lines = lists:droplast(binary:split(Normal, <<"\n">>, [global])),
    lines(Lines, none, <<"message">>, <<>>).

lines([<<>> | Lines], none, _Name, Id) ->
    lines(Lines, none, <<"message">>, Id);
lines([<<>> | Lines], Data, Name, Id) ->
    [{Name, binary:part(Data, 0, byte_size(Data) - 1), Id} | lines(Lines, none, <<"message">>, Id)];
lines([<<":", _/binary>> | Lines], Data, Name, Id) ->
    lines(Lines, Data, Name, Id);
lines([Line | Lines], Data, Name, Id) ->
    case binary:split(Line, <<":">>) of
        [Field, <<" ", Value/binary>>] -> field(Field, Value, Lines, Data, Name, Id);
        [Field, Value] -> field(Field, Value, Lines, Data, Name, Id);
        [Field] -> field(Field, <<>>, Lines, Data, Name, Id)
    end;
lines([], _Data, _Name, _Id) ->
    [].

field(<<"data">>, Value, Lines, none, Name, Id) -> lines(Lines, <<Value/binary, "\n">>, Name, Id);
field(<<"data">>, Value, Lines, Data, Name, Id) -> lines(Lines, <<Data/binary, Value/binary, "\n">>, Name, Id);
field(<<"event">>, Value, Lines, Data, _Name, Id) -> lines(Lines, Data, Value, Id);
field(<<"id">>, Value, Lines, Data, Name, _Id) -> lines(Lines, Data, Name, Value);
field(_Unknown, _Value, Lines, Data, Name, Id) -> lines(Lines, Data, Name, Id).

%% Returns the events in a body in chunks.
body(Bytes) -> read(chunks(Bytes)).

chunks(Bytes) ->
    [Size, Rest] = binary:split(Bytes, <<"\r\n">>),
    case binary_to_integer(Size, 16) of
        0 -> <<>>;
        Length ->
            <<Chunk:Length/binary, "\r\n", More/binary>> = Rest,
            <<Chunk/binary, (chunks(More))/binary>>
    end.
