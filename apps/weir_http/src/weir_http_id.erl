%% @private
%% @doc What a request is called: as its client, or a server in front of us, has called it in `x-request-id', or a new name.
-module(weir_http_id).

-export([of_request/2]).

%% Bytes of a name.
-define(LONGEST, 128).

%% @doc `take': the name that came with it, if it is one that can stand anywhere. `make': always a new one.
-spec of_request(weir_http_request:request(), make | take) -> binary().
of_request(_Request, make) ->
    new();
of_request(Request, take) ->
    case weir_http_request:field(<<"x-request-id">>, Request) of
        Given when byte_size(Given) >= 1, byte_size(Given) =< ?LONGEST ->
            case is_name(Given) of
                %% What came with it would be kept.
                true -> binary:copy(Given);
                false -> new()
            end;
        _ ->
            new()
    end.

is_name(<<Byte, Rest/binary>>) when
    Byte >= $a, Byte =< $z; Byte >= $A, Byte =< $Z; Byte >= $0, Byte =< $9; Byte =:= $-; Byte =:= $_; Byte =:= $.; Byte =:= $:;
    Byte =:= $/; Byte =:= $+; Byte =:= $=
->
    is_name(Rest);
is_name(Rest) ->
    Rest =:= <<>>.

%% Nobody has to be unable to guess it, so that it need not cost much.
new() -> binary:encode_hex(rand:bytes(12)).
