%% @private
%% @doc The id of a request: from the field `x-request-id' of the client or a proxy, or a new one.
-module(weir_http_id).

-export([of_request/2]).

%% Bytes of an id.
-define(LONGEST, 128).

%% @doc Returns the id of a request. `take': the one that it came with, if it is valid. `make': always a new one.
-spec of_request(weir_http_request:request(), make | take) -> binary().
of_request(_Request, make) ->
    new();
of_request(Request, take) ->
    case weir_http_request:field(<<"x-request-id">>, Request) of
        Given when byte_size(Given) >= 1, byte_size(Given) =< ?LONGEST ->
            case is_name(Given) of
                %% A sub-binary would keep the request alive.
                true -> binary:copy(Given);
                false -> new()
            end;
        _ ->
            new()
    end.

is_name(<<Byte, Rest/binary>>) when
    Byte >= $a, Byte =< $z;
    Byte >= $A, Byte =< $Z;
    Byte >= $0, Byte =< $9;
    Byte =:= $-;
    Byte =:= $_;
    Byte =:= $.;
    Byte =:= $:;
    Byte =:= $/;
    Byte =:= $+;
    Byte =:= $=
->
    is_name(Rest);
is_name(Rest) ->
    Rest =:= <<>>.

%% Ids need not be unpredictable, so they are made cheaply.
new() -> binary:encode_hex(rand:bytes(12)).
